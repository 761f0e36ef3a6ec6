"""`python -m mhc.bench`."""

if __name__ == "__main__":
    from mhc.terminal import open_standard

    open_standard()  # before anything else is opened

    from mhc.bench.cli import main

    main()
