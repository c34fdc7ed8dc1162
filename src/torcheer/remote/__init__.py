"""Storage behind a URL: an archive, extraction or run is copied there when it is complete, and read from there."""

from torcheer.disk import is_url, shown
from torcheer.remote.attached_folders import (
    address,
    attach,
    attached,
    fetch_file,
    fetch_folder,
    fill,
    local_folder,
    name_of,
    open_url,
    publish,
    publish_once,
    suffixed,
    upload,
)
from torcheer.remote.folder_uploader import FolderUploader
from torcheer.remote.remote_folder import RemoteFolder

__all__ = [
    "FolderUploader",
    "RemoteFolder",
    "address",
    "attach",
    "attached",
    "fetch_file",
    "fetch_folder",
    "fill",
    "is_url",
    "local_folder",
    "name_of",
    "open_url",
    "publish",
    "publish_once",
    "shown",
    "suffixed",
    "upload",
]
