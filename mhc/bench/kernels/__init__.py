"""Time, memory and accuracy of every contender at one shape. Open `contenders.py` first."""
