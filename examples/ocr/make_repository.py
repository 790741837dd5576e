"""Makes a folder for `opweld serve` that reads text in images: two models of PP-OCR, and the program that joins them.

    pip install 'opweld[serve]' pillow rapidocr-onnxruntime
    python make_repository.py models
    opweld serve models

The models come with the package rapidocr-onnxruntime, or from --detector and --recogniser.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import opweld

PROGRAM = Path(__file__).parent / "program"
PACKAGE = "rapidocr_onnxruntime"


def make(folder: Path, detector: Path, recogniser: Path) -> None:
    """Compiles the models into `folder`, and puts the program beside them.

    The recogniser has its letters with it, as PP-OCR's do: `character` in its metadata, one a line."""
    for name, model in (("detect", detector), ("recognise", recogniser)):
        compiled = opweld.compile(model)
        compiled.save(folder / name / "1" / "model.opweld")
    place = folder / "ocr" / "1"
    shutil.copytree(PROGRAM, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    letters = compiled.session.manifest.metadata.custom["character"].rstrip("\n")
    (place / "characters.txt").write_text(f"{letters}\n ", encoding="utf-8")  # the last one is a space


def main() -> None:
    """Of the package's models, or those given."""
    found = find_spec(PACKAGE)
    package = Path(found.origin).parent / "models" if found is not None and found.origin else Path()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detector", type=Path, default=package / "ch_PP-OCRv4_det_infer.onnx")
    parser.add_argument("--recogniser", type=Path, default=package / "ch_PP-OCRv4_rec_infer.onnx")
    arguments = parser.parse_args()
    for path in (arguments.detector, arguments.recogniser):
        if not path.is_file():
            sys.exit(f"there is no {path}: pip install rapidocr-onnxruntime, or name it")
    make(arguments.folder, arguments.detector, arguments.recogniser)


if __name__ == "__main__":
    main()
