"""Programs that other people's compilers wrote: transformers of which every head is known."""
