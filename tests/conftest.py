"""Options of the test suite, and fixtures that more than one file uses."""

from browser import browser, browser_page  # noqa: F401
from hypothesis import settings

settings.register_profile("torcheer", deadline=None)  # a loaded machine is no failure
settings.load_profile("torcheer")


def pytest_addoption(parser):
    parser.addoption("--overwrite", action="store_true", help="write the golden files anew")
