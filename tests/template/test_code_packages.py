"""`code-interpreter-full` as users of E2B's SDK have it: its packages, R and Java."""

import base64
import io
import json

import pytest
from e2b_code_interpreter import Sandbox
from PIL import Image

from tests.template.recipe import SANDBOX_FILES

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PINS = [
    line.split("==")
    for line in (SANDBOX_FILES / "interpreter/e2b.txt").read_text().splitlines()
    if not line.startswith("#")
]
IMPORT = """
import importlib, importlib.metadata, re
def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
modules = {}
for module, names in importlib.metadata.packages_distributions().items():
    for name in names:
        if module.isidentifier() and not module.startswith("_"):
            modules.setdefault(normal(name), []).append(module)
imported = {}
for name in wanted:
    for module in modules[normal(name)]:
        importlib.import_module(module)
    imported[name] = importlib.metadata.version(name)
imported
"""
USE = """
import cv2, io, librosa, numba, numpy, skimage, soundfile, spacy, textblob, docx, bokeh.plotting, xarray
from gensim.models import Word2Vec
found = [Word2Vec([["a", "b"]], min_count=1, vector_size=2).wv.vector_size]
found.append(numba.njit(lambda n: n * 2)(21))
found.append(cv2.cvtColor(numpy.zeros((2, 2, 3), "uint8"), cv2.COLOR_BGR2GRAY).shape)
found.append([token.text for token in spacy.blank("en")("Two words")])
wave = io.BytesIO()
soundfile.write(wave, numpy.zeros(8000), 8000, format="WAV")
wave.seek(0)
found.append(librosa.load(wave, sr=None)[1])
found.append(xarray.DataArray([1, 2]).sum().item())
found
"""
PLOT = 'plot(c(1, 4, 9), main = "Squares", col = "red", pch = 19)'
JAVA = """
import java.util.*;
record Point(int x, int y) {}
var points = List.of(new Point(1, 2), new Point(3, 4));
System.out.println(points.stream().mapToInt(Point::y).sum());
"""


@pytest.fixture(scope="module")
def sandbox(with_all_code, options):
    with Sandbox.create(with_all_code, timeout=3600, **options) as sandbox:
        yield sandbox


@pytest.fixture
def run(sandbox):
    def run(code, **how):
        done = sandbox.run_code(code, timeout=300, **how)
        assert done.error is None, done.error.traceback
        return done

    return run


def test_full__imports_every_package_of_e2bs_template_in_its_version(run):
    names = [name for name, _ in PINS]
    (imported,) = run(f"wanted = {names!r}{IMPORT}").results
    assert imported.json == dict(PINS)


def test_full__packages_with_native_code_work(run):
    (found,) = run(USE).results
    assert found.json == [2, 42, [2, 2], ["Two", "words"], 8000, 3]


def test_full__r_draws_a_plot(run, pictures):
    run("squares <- function(n) n ^ 2", language="r")
    assert "[1] 1 4 9" in "".join(run("print(squares(1:3))", language="r").logs.stdout)
    (plot,) = run(PLOT, language="r").results
    image = Image.open(io.BytesIO(base64.b64decode(plot.png))).convert("RGB")
    image.save(pictures / "code-interpreter-r.png")
    assert (255, 0, 0) in {colour for _, colour in image.getcolors(1 << 20) or []}


def test_full__java_keeps_variables_between_executions(run):
    assert "".join(run(JAVA, language="java").logs.stdout) == "6\n"
    (result,) = run("points.size() * 21", language="java").results
    assert json.loads(result.text) == 42
