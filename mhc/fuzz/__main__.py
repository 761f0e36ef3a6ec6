"""`python -m mhc.fuzz`."""

if __name__ == "__main__":
    from mhc.fuzz.cli import main  # here, so that a worker, which imports this module anew, does without

    main()
