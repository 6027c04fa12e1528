# labels: plain unprivileged
"""tools/check-layers: texts of the library without options of the command."""
import importlib.machinery
import importlib.util
import pathlib

TOOL = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'check-layers'


def load():
    loader = importlib.machinery.SourceFileLoader('check_layers', str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('check_layers', loader))
    loader.exec_module(module)
    return module


def test_no_options_in_texts(tmp_path, monkeypatch):
    layers = load()
    monkeypatch.setattr(layers, 'ROOT', tmp_path)
    monkeypatch.setattr(layers, 'shared', list)
    folder = tmp_path / 'src' / 'base'
    folder.mkdir(parents=True)
    cases = {
        'const char *a = "raise --memory to 4G";': '--memory',
        'const char *a = "one "\n"--batch-size";': '--batch-size',
        'const char *a = "see `plimsoll plan`";': 'plimsoll plan',
        'const char *a = "see `plimsoll "\n"plan`";': 'plimsoll plan',
        '#define A "with --split \\"0.6\\""': '--split',
        'const char *a = "raise `memory`"; /* "--memory" */': None,
        'int a = b--, c = --dd; // "--memory"': None,
        'const char *a = "%s--%s, older plimsoll wrote it";': None,
    }
    for text, word in cases.items():
        (folder / 'x.c').write_text(text + '\n')
        found = [complaint for _, complaint in layers.complaints()]
        assert [word is not None and f'"{word}"' in one for one in found] == [True] * (word is not None), (text, found)
