"""Adapt a pretrained language model to a domain on CPU, then fine-tune it.

raw text ──corpus──▶ words ──w2v──▶ word vectors ──align──▶ linear map ──expand──▶ adapted model folder
adapted model folder ──pretrain──▶ the same, trained on text
adapted model folder ──finetune──▶ task model folder ──predict──▶ labels, entities, answers
question answering model, adapted or not ──qa──▶ answers in whole documents

The packages, from the bottom up, in the order in which they import each other:

- ``storage``: what is on disk, whoever wrote it (arrays, locks, manifests, the workspace)
- ``tokenization``: text to words and pieces; ``DualTokenizer`` gives both views of a text
- ``corpus``: raw text to counted words; ``checkpoints``: model folders, read and written without torch
- ``vectors``: from counted words to rows of an embedding (CBOW, the map, the new rows)
- ``tasks``: files to examples to what a model reads, and its logits to predictions and scores
- ``models``: torch models, opened with the rows they need; adapters and memory
- ``training`` and ``inference``; ``report``: model cards and tables
- ``stages``: one function a command, folder in, folder out; ``cli``: the commands

The methods are those of Poerner et al., "Inexpensive Domain Adaptation of Pretrained Language Models" (arXiv
2004.03354), Wan et al., "G-MAP" (arXiv 2212.03613), and Stickland and Murray, "BERT and PALs" (arXiv 1902.02671).

Nothing is imported here: the command line must start at once.
"""

__version__ = "0.2.0"
