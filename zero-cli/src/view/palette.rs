//! Palette: the colour and pattern of each class of ops and each group of memory, on pages and in figures. Never draws.
//!
//! The colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any colour vision can
//! distinguish. Each also has a pattern, so that nothing is distinguished by colour alone.

use serde::Serialize;
use zero_plan::Class;
use zero_study::picture::MemoryGroup;

/// How something is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Paint {
    /// Its name in data, which is the name of its class or group.
    pub name: &'static str,
    /// Its name in legends.
    pub words: &'static str,
    /// Its colour; none if only its pattern is drawn.
    pub fill: Option<&'static str>,
    /// The colour of text on it.
    pub ink: &'static str,
    /// Lines of its pattern in a tile of 8 x 8 pixels: from x and y to x and y.
    pub strokes: &'static [[i8; 4]],
}

const BLACK: &str = "#000000";
const WHITE: &str = "#ffffff";
const BLUE: &str = "#0072B2";
const VERMILLION: &str = "#D55E00";
const GREEN: &str = "#009E73";
const SKY: &str = "#56B4E9";
const ORANGE: &str = "#E69F00";
const YELLOW: &str = "#F0E442";
const PURPLE: &str = "#CC79A7";
const GREY: &str = "#666666";

const PLAIN: &[[i8; 4]] = &[];
const RISING: &[[i8; 4]] = &[[0, 8, 8, 0], [-4, 4, 4, -4], [4, 12, 12, 4]];
const FALLING: &[[i8; 4]] = &[[0, 0, 8, 8], [-4, 4, 4, 12], [4, -4, 12, 4]];
const LEVEL: &[[i8; 4]] = &[[0, 2, 8, 2], [0, 6, 8, 6]];
const UPRIGHT: &[[i8; 4]] = &[[2, 0, 2, 8], [6, 0, 6, 8]];
const GRID: &[[i8; 4]] = &[[0, 4, 8, 4], [4, 0, 4, 8]];
const DASHES: &[[i8; 4]] = &[[0, 2, 3, 2], [4, 6, 7, 6]];
const CROSSED: &[[i8; 4]] = &[[0, 0, 8, 8], [0, 8, 8, 0]];
const SPARSE: &[[i8; 4]] = &[[0, 8, 8, 0]];

const fn paint(
    name: &'static str,
    words: &'static str,
    fill: &'static str,
    ink: &'static str,
    strokes: &'static [[i8; 4]],
) -> Paint {
    Paint { name, words, fill: Some(fill), ink, strokes }
}

/// Classes, in the order of [`Class::ALL`].
pub const CLASSES: [Paint; Class::ALL.len()] = [
    paint("forward", "forward", BLUE, WHITE, PLAIN),
    paint("recompute", "recompute", PURPLE, BLACK, DASHES),
    paint("backward", "backward", VERMILLION, BLACK, RISING),
    paint("update", "update", GREEN, BLACK, GRID),
    paint("gather", "parameters travel", SKY, BLACK, LEVEL),
    paint("reduce", "gradients travel, sums", ORANGE, BLACK, FALLING),
    paint("parcel", "parcels between pipeline stages", YELLOW, BLACK, UPRIGHT),
    paint("agree", "agreement of all ranks", GREY, WHITE, PLAIN),
    paint("tier", "states travel to and from a tier", BLACK, WHITE, CROSSED),
];

/// Groups, in the order of [`MemoryGroup::ALL`].
pub const GROUPS: [Paint; MemoryGroup::ALL.len()] = [
    paint("parameters", "parameters", BLUE, WHITE, PLAIN),
    paint("optimizer", "optimizer state", GREEN, BLACK, GRID),
    paint("gathered", "gathered parameters", SKY, BLACK, LEVEL),
    paint("gradients", "gradients", VERMILLION, BLACK, RISING),
    paint("activations", "activations", PURPLE, BLACK, DASHES),
    paint("workspace", "workspace and outgoing", YELLOW, BLACK, UPRIGHT),
];

/// Time in which a rank waits.
pub const WAIT: Paint = Paint { name: "wait", words: "waits", fill: None, ink: BLACK, strokes: SPARSE };

/// The memory that a rank uses outside its arena.
pub const OUTSIDE: Paint =
    Paint { name: "outside", words: "outside the arena, at most", fill: None, ink: BLACK, strokes: SPARSE };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paints_are_in_the_order_of_what_they_are_for() {
        let name = |value: serde_json::Value| value.as_str().map(str::to_owned);
        for (class, paint) in Class::ALL.into_iter().zip(CLASSES) {
            assert_eq!(name(serde_json::json!(class)).as_deref(), Some(paint.name));
        }
        for (group, paint) in MemoryGroup::ALL.into_iter().zip(GROUPS) {
            assert_eq!(name(serde_json::json!(group)).as_deref(), Some(paint.name));
        }
    }

    #[test]
    fn neither_colour_nor_pattern_alone_is_needed_among_what_is_drawn_together() {
        for paints in [&CLASSES[..], &GROUPS] {
            let distinct = |of: &dyn Fn(&Paint) -> String| paints.iter().map(of).collect::<BTreeSet<_>>().len();
            assert_eq!(distinct(&|paint| format!("{:?}", paint.fill)), paints.len());
            // Forward and the agreement are both plain; they are never neighbours: forward is blue and long, the other grey.
            assert!(distinct(&|paint| format!("{:?}", paint.strokes)) + 1 >= paints.len());
        }
    }
}
