from dataclasses import asdict, replace

import pytest

from greenadapt.config import MIN_ALPHA, AlignConfig, ExpandConfig, MemoryConfig, QaConfig, TaskConfig, W2VConfig
from greenadapt.errors import UsageError
from greenadapt.vectors.engine.stream import NOISE_EXPONENT


def test_the_defaults_are_gensims() -> None:
    import inspect

    from gensim.models import Word2Vec

    theirs = {name: p.default for name, p in inspect.signature(Word2Vec.__init__).parameters.items()}
    ours = W2VConfig()
    for name in ("window", "negative", "sample", "min_count", "epochs", "alpha"):
        assert getattr(ours, name) == theirs[name], name
    assert (theirs["ns_exponent"], theirs["min_alpha"]) == (NOISE_EXPONENT, MIN_ALPHA)
    assert (theirs["cbow_mean"], theirs["shrink_windows"], theirs["sg"], theirs["hs"]) == (1, True, 0, 0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: W2VConfig(dim=0), "--dim is 0, must be greater than or equal to 1"),
        (lambda: W2VConfig(alpha=0.00002), "--alpha is 2e-05, must be"),
        (lambda: QaConfig(no_answer=False, null_threshold=1.0), "--null-threshold has no effect"),
        (
            lambda: ExpandConfig(oov="greedy", restrict_to=("a",)),
            "--restrict-to changes other words under --oov greedy",
        ),
        (lambda: TaskConfig(negatives=9), "^--negatives belongs to --task qa, this is ner$"),
        (lambda: TaskConfig("qa", label_field="class"), "^--label-field belongs to --task classification, this is qa$"),
        (lambda: AlignConfig(method="typo"), "^--method is 'typo', must be 'lstsq', 'procrustes', 'identity'"),  # type: ignore[arg-type]
        (lambda: W2VConfig(epochs="3"), "^--epochs is '3', must be a valid integer"),  # type: ignore[arg-type]
        (lambda: W2VConfig(alpha=float("inf")), "^--alpha is inf, must be a finite number$"),
        (lambda: ExpandConfig(replace_all=1), "^--replace-all is 1, must be a valid boolean$"),  # type: ignore[arg-type]
        (lambda: MemoryConfig(layers=(0, 6)), "^--memory-layers has 0, must be greater than or equal to 1$"),
    ],
)
def test_nonsense_is_refused_with_the_option_and_its_value(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(UsageError, match=message):
        build()


def test_a_configuration_keeps_its_values_as_they_are() -> None:
    config = W2VConfig(alpha=1, dim=None)
    assert asdict(config)["alpha"] == 1
    assert isinstance(config.alpha, int)
    assert config == replace(config, epochs=5)
