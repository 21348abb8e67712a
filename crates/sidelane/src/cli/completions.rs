//! Arguments of `sidelane completions`.

use clap::{Args, ValueEnum};

/// Shells that complete verbs and options.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// Arguments of `sidelane completions`.
#[derive(Debug, Args)]
#[command(before_help = "\
Print the completions for bash:
  sidelane completions bash
Write those for zsh into a folder of its fpath:
  sidelane completions zsh >_sidelane")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
