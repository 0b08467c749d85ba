//! The names and constants of the environments.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::environment::{
    acrobot::Acrobot,
    cartpole::CartPole,
    world::{Rules, World},
};

/// An environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Game {
    /// Balance a pole on a cart.
    #[default]
    CartPole,
    /// Swing up two linked bars.
    Acrobot,
}

impl Game {
    /// All environments.
    pub const ALL: [Self; 2] = [Self::CartPole, Self::Acrobot];

    /// The constants of this environment.
    pub const fn rules(self) -> &'static Rules {
        match self {
            Self::CartPole => &CartPole::RULES,
            Self::Acrobot => &Acrobot::RULES,
        }
    }

    /// Gymnasium's name.
    pub const fn name(self) -> &'static str {
        self.rules().name
    }

    /// Finds an environment by Gymnasium's name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|game| game.name() == name)
    }
}

impl fmt::Display for Game {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl TryFrom<String> for Game {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::by_name(&name).ok_or_else(|| format!("unknown environment {name:?}"))
    }
}

impl From<Game> for String {
    fn from(game: Game) -> Self {
        game.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn game_is_serialized_by_gymnasium_name() {
        for game in Game::ALL {
            let text = serde_json::to_string(&game).unwrap();
            assert_eq!(text, format!("\"{game}\""));
            assert_eq!(serde_json::from_str::<Game>(&text).unwrap(), game);
        }
        let error = serde_json::from_str::<Game>("\"Pong-v5\"").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unknown environment \"Pong-v5\"")
        );
    }
}
