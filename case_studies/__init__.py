"""Papers, one folder each, and the frame they share: what a claim is, how a study runs, resumes and reports."""
