"""Which further layouts would help a query. Found by planning over layouts that are not there."""
