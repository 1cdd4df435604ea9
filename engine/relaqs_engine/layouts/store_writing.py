"""Writing a layout to an object store: made in a folder of this machine, then put, the manifest last.

    TABLE/data-<16 hex digits>/part-00000.parquet   put first, under names that nothing uses yet
    TABLE/manifest.json                             put last, and only if it is still the one that was found

Putting the manifest is the switch. Of several writers the first one wins. The others fail, and remove what
they put. A writer that dies before the switch leaves files that no manifest names. A later write removes them
when they are a day old: younger ones may be another writer's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from relaqs_engine.errors import LayoutError, StoreError
from relaqs_engine.layouts.folder import Writing, writing
from relaqs_engine.layouts.manifest import MANIFEST_NAME, Layout
from relaqs_engine.layouts.manifest_file import manifest_text
from relaqs_engine.stores.address import WRITABLE, Address
from relaqs_engine.stores.folder import StoredObject, StoreFolder, store_folder
from relaqs_engine.stores.mirror import Remote, mirror_folder

LEFT_BEHIND = timedelta(days=1)
_DATA = re.compile(r"(data-[0-9a-f]{16})/")


@dataclass(frozen=True, slots=True)
class StoreWriting(Writing):
    """A write to an object store under way. `directory` and `scratch` are on this machine.

    Attributes:
        address: of the table.
        replaced: the manifest that is there, None where there is none.
        root: of the copies on this machine.
    """

    address: Address
    replaced: StoredObject | None
    root: Path

    def publish(self, layout: Layout) -> Layout:
        """Put the written partitions and then the manifest. Return the layout as it lies in the store."""
        folder = store_folder(self.address)
        before = folder.content(MANIFEST_NAME)
        put: list[str] = []
        try:
            for file in sorted(self.parts.iterdir()):
                put.append(f"{self.data_name}/{file.name}")
                folder.put(put[-1], file)
            self._switch(folder, manifest_text(layout))
        except BaseException:
            with suppress(StoreError):  # what cannot be removed now is removed by a later write
                folder.delete(put)
            raise
        _sweep(folder, _data_folders(before[0] if before else b""), self.data_name)
        directory = mirror_folder(self.root, self.address)
        return replace(layout, directory=directory, remote=Remote(self.address, str(self.root)))

    def _switch(self, folder: StoreFolder, manifest: bytes) -> None:
        if not folder.replace(MANIFEST_NAME, manifest, self.replaced):
            raise LayoutError(
                f"{self.address} was written by somebody else meanwhile, and has that layout now; "
                "write again to replace it"
            )


@contextmanager
def writing_to_store(address: Address, root: Path, *, force: bool) -> Iterator[Writing]:
    """Give a place on this machine to write a table's new layout for an object store.

    Raises LayoutError as `folder.writing` does, StoreError where the store does not answer.
    """
    if not address.is_writable:
        kinds = ", ".join(f"{scheme}://" for scheme in WRITABLE)
        raise LayoutError(f"{address} can only be read; tables can be written to {kinds} and to folders")
    if not address.name:
        raise LayoutError(f"{address} is no table's folder; name one, e.g. {address}/trips")
    folder = store_folder(address)
    replaced = folder.described(MANIFEST_NAME)
    _check_replaceable(folder, replaced, force=force)
    staging = root / "writing" / hashlib.sha256(str(address).encode()).hexdigest()[:16] / address.name
    with writing(staging, force=True) as target:
        yield StoreWriting(target.directory, target.scratch, address, replaced, root)


def _check_replaceable(folder: StoreFolder, replaced: StoredObject | None, *, force: bool) -> None:
    if replaced is not None:
        if not force:
            raise LayoutError(
                f"{folder.address} holds a layout already; give force=True (--force) to replace it, "
                "or name another folder"
            )
        return
    strangers = [each.key for each in folder.below() if not _DATA.match(each.key)]
    if strangers:
        raise LayoutError(
            f"{folder.address} is not empty and holds no layout (it has {', '.join(strangers[:3])}); "
            "name a folder for the table alone"
        )


def _sweep(folder: StoreFolder, replaced: set[str], current: str) -> None:
    """Remove the files of the layout that was replaced, and what writers that died have left."""
    with suppress(StoreError):  # the new layout is there; a later write removes the rest
        there = folder.below()
        now = max(each.modified for each in there if each.key == MANIFEST_NAME)
        for each in there:
            data = _DATA.match(each.key)
            if data is None or data[1] == current:
                continue
            if data[1] in replaced or now - each.modified > LEFT_BEHIND:
                folder.delete([each.key])


def _data_folders(manifest: bytes) -> set[str]:
    """Return the data folders that a manifest names, none where it cannot be understood."""
    try:
        partitions = json.loads(manifest)["partitions"]
        files = [stored for each in partitions for stored in each.get("files", [each])]
        return {str(stored["file"]).split("/")[0] for stored in files}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()
