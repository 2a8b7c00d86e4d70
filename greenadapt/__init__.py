"""Adapt a pretrained language model to a domain on CPU, then fine-tune it.

raw text ──corpus──▶ words ──w2v──▶ word vectors ──align──▶ linear map ──expand──▶ adapted model folder
adapted model folder ──pretrain──▶ the same, trained on text
adapted model folder ──finetune──▶ task model folder ──predict──▶ labels, entities, answers
question answering model, adapted or not ──qa──▶ answers in whole documents

Each stage reads a folder and writes a folder (``pipeline``); each algorithm works on arrays and knows no workspace
(``w2v``, ``align``, ``expand``). ``tokenizer.DualTokenizer`` gives both views of a text: the base wordpieces, and
the same with every added word kept whole. Fine-tuning goes through ``tasks`` (files → examples → what a model reads,
and its logits → predictions → scores), ``models`` (what is put together from pretrained models: memory, masked language
models) and ``training``, these two the parts that need torch. The methods are those of Poerner et al., "Inexpensive
Domain Adaptation of Pretrained Language Models" (arXiv 2004.03354), and of Wan et al., "G-MAP" (arXiv 2212.03613).
Nothing is imported here: the command line must start at once.
"""

__version__ = "0.1.0"
