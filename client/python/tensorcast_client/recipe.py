"""Recipes of variants: a YAML or JSON file, a dict, or one that comes with the client, made into the JSON that the daemon takes.

What is done here is what needs the caller's files and the artifact's config.json: YAML becomes JSON, ${KEY} its value, and a
path behind `expect` the JSON in that file. What a step may say, and whether it fits the tensors, is judged by the daemon alone;
the line on which the step begins is put before its complaint.
"""
from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import builtin_recipes, dtypes, errors

_MAX_FILE_BYTES, _MAX_BYTES = 16 << 20, 1 << 20
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9_.-]{1,255})(?::-([^}]*))?\}")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class Recipe(NamedTuple):
    """document: as it was written. name: what messages call it. lines: on which each step begins, where that is known. folder:
    where the paths in it begin. values: of its variables, as the caller gave them."""

    document: Any
    name: str = "the recipe"
    lines: tuple = ()
    folder: str = ""
    values: Mapping = {}

    def steps(self):
        found = self.document.get("steps") if isinstance(self.document, Mapping) else None
        return found if isinstance(found, (list, tuple)) else []

    def where(self, number):
        """Of a step, for messages."""
        return f"{self.name}:{self.lines[number - 1]}: " if number <= len(self.lines) else ""


def read(given, values):
    """The Recipe of what a caller gave: a mapping, a path, or the name of a built-in recipe."""
    if values is not None and not (isinstance(values, Mapping) and all(isinstance(key, str) for key in values)):
        raise _bad(f"set is {values!r}; it is {{key: value}}")
    return _read(given)._replace(values=dict(values or {}))


def _read(given):
    if isinstance(given, Mapping):
        return Recipe(given)
    if isinstance(given, str) and given in builtin_recipes.RECIPES:
        return _parsed(builtin_recipes.RECIPES[given], given, "")
    if not isinstance(given, (str, os.PathLike)):
        raise _bad(f"a variant is the path of a recipe, a dict, or one of {', '.join(builtin_recipes.RECIPES)}, not {given!r}")
    path = os.fspath(given)
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _bad(f"no recipe can be read from {path} ({error.strerror}), and the built-in ones are "
                   f"{', '.join(builtin_recipes.RECIPES)}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise _bad(f"{path} has more than {_MAX_FILE_BYTES} bytes")
    try:
        return _parsed(data.decode(), path, os.path.dirname(os.path.abspath(path)))
    except UnicodeDecodeError:
        raise _bad(f"{path} is no UTF-8 text") from None


def to_json(recipes, config):
    """The bytes that go to the daemon: one recipe of all their steps. config(): the values of the artifact's config.json, asked
    for when something is wanted that the caller did not give."""
    names = ", ".join(recipe.name for recipe in recipes)
    try:
        data = json.dumps(_joined([_filled(recipe, _Values(recipe.values, config)) for recipe in recipes]), separators=(",", ":"),
                          ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, errors.TensorcastError):
            raise
        raise _bad(f"{names}: this is no JSON: {error}") from None
    if len(data) > _MAX_BYTES:
        raise _bad(f"{names}: {len(data)} bytes as JSON; {_MAX_BYTES} are allowed")
    return data


def _plain(value):
    """NumPy's integers, and the types of NumPy and torch."""
    return dtypes.read_name(value) if dtypes.is_type(value) else operator.index(value)


def located(recipes, error):
    """An error of the daemon, with the line of the step that it is about."""
    step = error.metadata.get("step", "")
    number = int(step) if step.isdecimal() and len(step) < 10 else 0
    for recipe in recipes:
        if 0 < number <= len(recipe.lines):
            return errors.make(error.code, recipe.where(number) + error.message, error.reason, error.metadata)
        number -= len(recipe.steps())
    return error


def _filled(recipe, values):
    steps = [_step(recipe, step, at, values) for at, step in enumerate(recipe.steps(), 1)]
    if values.unused:
        raise errors.invalid(f"{recipe.name}: the recipe has no ${{{min(values.unused)}}} that could be set", "UNKNOWN_SETTING")
    return {**recipe.document, "steps": steps} if steps else recipe.document


def _joined(documents):
    """One after the other. What is wrong at the top of one of them has to be wrong in the whole."""
    if len(documents) == 1:
        return documents[0]
    for document in documents:
        if not isinstance(document, Mapping) or document.get("version") != 1 or not isinstance(document.get("steps"), (list, tuple)):
            return document
    return {**{key: value for document in documents for key, value in document.items()},
            "steps": [step for document in documents for step in document["steps"]]}


def _parsed(text, name, folder):
    from .recipe_yaml import parse  # PyYAML only where YAML is read
    document, lines = parse(text, name)
    return Recipe(document, name, lines, folder)


def _bad(message):
    return errors.invalid(message, "BAD_RECIPE")


def _step(recipe, step, number, values):
    """A step with its values, and with the content of the file that `expect` names."""
    where = f"{recipe.where(number)}step {number}"
    try:
        step = _substituted(step, values)
    except _Unknown as unknown:
        raise _bad(f"{where}: {unknown}") from None
    except RecursionError:
        raise _bad(f"{where}: nested too deep") from None
    if isinstance(step, dict) and isinstance(step.get("expect"), str):
        return {**step, "expect": _expected(where, os.path.join(recipe.folder, step["expect"]))}
    return step


def _expected(where, path):
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise ValueError(f"more than {_MAX_FILE_BYTES} bytes")
        return json.loads(data, object_pairs_hook=_without_duplicates)
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(f"{where} (expect): {path}: {error}") from None


def _without_duplicates(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


# --- ${KEY} and ${KEY:-DEFAULT} ---

class _Unknown(Exception):
    pass


class _Values:
    def __init__(self, given, config):
        self._given, self._config, self._asked, self.unused = given, config, None, set(given)

    def __call__(self, key, default, is_whole=False):
        """is_whole: no part of a longer text, which a number would lose its leading zeros in."""
        self.unused.discard(key)
        if key in self._given:
            return _value_of(self._given[key]) if is_whole else self._given[key]
        if self._asked is None:
            self._asked = self._config()
        found = self._asked.get(key)
        if isinstance(found, (list, dict)):
            raise _Unknown(f"${{{key}}} is a {'list' if isinstance(found, list) else 'mapping'} in the artifact's config.json: pass "
                           f"set={{{key!r}: ...}}")
        if found is not None:  # null says no more than a key that is not there
            return found
        if default is None:
            raise _Unknown(f"nothing says what ${{{key}}} is: pass set={{{key!r}: ...}}, or have it in the artifact's config.json")
        return None if default == "null" else _value_of(default) if is_whole else default


def _value_of(given):
    """Text that is a whole number is one, as on the command line."""
    return int(given) if isinstance(given, str) and _WHOLE_NUMBER.fullmatch(given) else given


def _substituted(node, values):
    """The node with its variables replaced; what they stand for is not looked into again."""
    if isinstance(node, str):
        whole = _VARIABLE.fullmatch(node)
        return values(*whole.groups(), is_whole=True) if whole else _text(node, values)
    if isinstance(node, Mapping):
        return {_text(key, values) if isinstance(key, str) else key: _substituted(value, values) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_substituted(item, values) for item in node]
    return node


def _text(text, values):
    def replace(match):
        value = values(*match.groups())
        return value if isinstance(value, str) else json.dumps(value, default=operator.index)
    return _VARIABLE.sub(replace, text)
