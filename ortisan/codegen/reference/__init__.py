"""The reference backend: op graphs evaluated in numpy. It generates nothing."""
