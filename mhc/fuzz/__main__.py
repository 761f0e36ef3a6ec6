"""`python -m mhc.fuzz`."""

from mhc.fuzz.cli import main

if __name__ == "__main__":
    main()
