"""Downloads: files from HTTP servers, resumed, from mirrors if need be, and verified."""
