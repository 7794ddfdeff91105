"""Write `docs/papers`: `python -m case_studies.papers`."""

from case_studies.frame.paper_statements import PAPERS
from case_studies.papers.table import known_claims, pages

if __name__ == "__main__":
    for path, text in pages(PAPERS, known_claims()).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
