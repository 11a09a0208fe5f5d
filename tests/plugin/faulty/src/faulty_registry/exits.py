import sys

sys.exit("a script that was taken for a module")
