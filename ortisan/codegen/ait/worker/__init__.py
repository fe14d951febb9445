"""Runs in a Python of its own, and alone imports AITemplate: it needs nothing of Ortisan but its own modules.

AITemplate keeps names, symbols and the target in globals, so each program gets a forked process. A job is a folder:
job.json in, result-N.json and src-N/ out.
"""
