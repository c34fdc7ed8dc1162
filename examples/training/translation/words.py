"""A sequence to a sequence: words are read letter by letter and written backwards."""

import random

import torch
from torch import nn


class Backwards:
    """Pairs of a word and the same word from its end."""

    def __init__(self, count=200, letters="abcde", seed=0):
        source = random.Random(seed)
        words = ["".join(source.choices(letters, k=source.randint(2, 5))) for _ in range(count)]
        self.pairs = [(word, word[::-1]) for word in words]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return self.pairs[index]


class Letters:
    """A preprocessor that learns which letters there are; 0 is nothing, 1 the start and 2 the end."""

    def fit(self, dataset):
        self.letters = sorted({letter for pair in dataset for word in pair for letter in word})

    def process(self, word):
        return [1, *(self.letters.index(letter) + 3 for letter in word), 2]

    def state_dict(self):
        return {"letters": self.letters}

    def load_state_dict(self, state):
        self.letters = state["letters"]

    @property
    def count(self):
        return len(self.letters) + 3


class Pad:
    """A collator: two columns of sequences, each filled up with zeros."""

    def __call__(self, batch):
        columns = zip(*batch)
        return [
            nn.utils.rnn.pad_sequence([torch.tensor(one) for one in column], batch_first=True) for column in columns
        ]


class Encoder(nn.Module):
    def __init__(self, count, size):
        super().__init__()
        self.embedding, self.cell = nn.Embedding(count, size), nn.GRU(size, size, batch_first=True)

    def forward(self, x):
        outputs, hidden = self.cell(self.embedding(x))
        return [outputs, hidden]


class Decoder(nn.Module):
    def __init__(self, count, size):
        super().__init__()
        self.embedding, self.cell = nn.Embedding(count, size), nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, count)

    def forward(self, y_shifted, hidden):
        outputs, hidden = self.cell(self.embedding(y_shifted), hidden)
        return [self.head(outputs), hidden]

    def run_inference(self, y_shifted, hidden):
        """One letter after the other, each the likeliest after those before it."""
        letter, scores = y_shifted[:, :1], []
        for _ in range(8):
            found, hidden = self(letter, hidden)
            scores.append(found)
            letter = found.argmax(-1)
        return [torch.cat(scores, 1), hidden]


def build_encoder(session, size):
    return Encoder(session.preprocessors["letters"].count, size)


def build_decoder(session, size):
    return Decoder(session.preprocessors["letters"].count, size)


class Shift:
    """The decoder reads what it is to write, one letter late."""

    def __call__(self, frame):
        return {"encoder": {"x": frame["source"]}, "decoder": {"y_shifted": frame["target"][:, :-1]}}


def letters_and_target(y_hat, target):
    return y_hat.transpose(1, 2), target[:, 1:]


class Spell:
    """A post-processor that is given the session: numbers become letters again."""

    def __init__(self, session):
        self.letters = session.preprocessors["letters"].letters

    def __call__(self, results):
        return {name: [self.word(row) for row in scores.argmax(-1).tolist()] for name, scores in results.items()}

    def word(self, numbers):
        end = numbers.index(2) if 2 in numbers else len(numbers)
        return "".join(self.letters[number - 3] for number in numbers[:end] if number > 2)


class Word:
    """An input converter: what stands on the command line, as a sample of the raw dataset."""

    def __call__(self, text):
        return text, ""
