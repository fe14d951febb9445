"""Models that the tests are made with, and what is needed to run them. Nothing is downloaded."""
