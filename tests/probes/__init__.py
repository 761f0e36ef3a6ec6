"""One executable probe for each failure or limit of TileLang that docs/tilelang/ speaks of; records.py has the answers."""
