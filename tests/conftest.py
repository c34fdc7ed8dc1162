"""Options of the test suite."""

from hypothesis import settings

settings.register_profile("torcheer", deadline=None)  # a loaded machine is no failure
settings.load_profile("torcheer")


def pytest_addoption(parser):
    parser.addoption("--overwrite", action="store_true", help="write the golden files anew")
