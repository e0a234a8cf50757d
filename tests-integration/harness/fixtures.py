"""Give every test room the harness's servers, clients and faults as fixtures."""
