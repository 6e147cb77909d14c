"""Files under names, wherever they lie: this machine, object stores, HTTP servers."""
