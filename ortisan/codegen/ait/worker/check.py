"""stub"""
def check_program(*a): raise NotImplementedError
