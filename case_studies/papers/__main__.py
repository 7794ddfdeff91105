"""Write `docs/papers`: `python -m case_studies.papers`."""

from case_studies.papers.sample import PAGE, load_sample, sample_page
from case_studies.papers.table import PAPERS, known_claims, load_paper, pages

if __name__ == "__main__":
    texts = pages(PAPERS, known_claims())
    texts[PAGE] = sample_page(load_sample(), [load_paper(path) for path in PAPERS])
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
