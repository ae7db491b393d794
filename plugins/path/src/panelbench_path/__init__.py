"""PATH: language models tuned with DP-SGD over user tables, the paper's system and one over cells."""
