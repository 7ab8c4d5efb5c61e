"""Sphinx builds the site from these pages: `make docs`."""

import re

project = "mcattn"
copyright = "the mcattn developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "mcattn"
exclude_patterns = ["examples"]

myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes the notebook; the site shows what is stored in it

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = False
napoleon_use_rtype = False

_FORMULA = re.compile(r"^ {4,}\S")
_FIELD = re.compile(r"^([\w, *]+) : (\S.*)$")


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text: bars and stars belong to formulas, indented paragraphs are some.

    `name : what it is` becomes a definition, with what follows indented as part of it.
    """
    out, in_field = [], False
    for line in lines:
        formula = bool(_FORMULA.match(line))
        in_field = in_field and bool(line.strip())
        if field := _FIELD.match(line):
            in_field = True
            out += [_escaped(field[1]), "    " + _escaped(field[2])]
        elif in_field:
            out.append("    " + _escaped(line.strip()))
        elif formula:
            out += ["::", ""] if out and not out[-1] else []
            out.append(line)
        else:
            out.append(_escaped(line))
    lines[:] = out


def _escaped(line):
    return re.sub(r"[|*]", r"\\\g<0>", line)


def setup(app):
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
