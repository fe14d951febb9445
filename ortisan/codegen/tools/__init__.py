"""The programs that builds are made with, and the cache of what they made."""
