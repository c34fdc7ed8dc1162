"""Options of the test suite."""


def pytest_addoption(parser):
    parser.addoption("--overwrite", action="store_true", help="write the golden files anew")
