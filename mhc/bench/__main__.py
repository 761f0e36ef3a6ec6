"""`python -m mhc.bench`."""

if __name__ == "__main__":
    from mhc.bench.cli import main

    main()
