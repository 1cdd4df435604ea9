"""The door for notebooks: `%load_ext relaqs` gives the magics `%relaqs` and `%%relaqs`.

Only this package imports IPython. What a query looks like in a cell is in `relaqs/rendering/html.py`.
"""
