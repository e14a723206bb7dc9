"""The lists of others that something is added to, or taken out of, as changes of their files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ductile_gateway.calls.excerpts import masked
from ductile_gateway.installation.changes import Change
from ductile_gateway.installation.plan import Added
from ductile_gateway.installation.yaml_lists import mapping_of, with_item, without_item
from groundwork.service.errors import Misconfigured


def additions(added: Iterable[Added]) -> list[Change]:
    """What is there already stays as it is. Raises Misconfigured."""
    return list(_edited(added, lambda text, each: text if _has(text, each) else with_item(text, each.key, each.item)))


def removals(added: Iterable[Added], *, made: Iterable[Path]) -> list[Change]:
    """`made`: files that were not there before; they go where nothing else is in them. Raises Misconfigured."""
    made = list(made)
    in_use = {path for path in made if (text := _read(path)) is not None and _rest(text, path, added)}
    unwanted = [each for each in added if not any(path.name == each.item for path in in_use)]
    edited = _edited(unwanted, lambda text, each: without_item(text, each.key, each.item))
    return [replace(each, after=None) if each.path in made and not each.after else each for each in edited]


def _edited(added: Iterable[Added], edit: Callable[[str, Added], str]) -> Iterator[Change]:
    added, texts = list(added), dict[Path, str]()
    for each in added:
        text = texts.get(each.path, _read(each.path) or "")
        try:
            texts[each.path] = edit(text, each)
        except Misconfigured as error:
            raise Misconfigured(masked(f"{each.path}: {error}", [each.secret])) from None
    for path, text in texts.items():
        before = _read(path)
        yield Change(
            path=path,
            before=_bytes(before),
            after=text.encode(),
            secret=any(each.path == path and each.secret for each in added),
            theirs=before is not None,
            whole=True,
        )


def _rest(text: str, path: Path, added: Iterable[Added]) -> str:
    for each in added:
        text = without_item(text, each.key, each.item) if each.path == path else text
    return text


def _has(text: str, each: Added) -> bool:
    return each.item in (mapping_of(text).get(each.key) or [])


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read ({type(error).__name__})") from None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
