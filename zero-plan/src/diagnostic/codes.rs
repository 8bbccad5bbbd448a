//! Codes: the catalogue of mistakes that a spec or an attribute can hold, for people to look up. Never finds one.

/// A kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The stable code: `Z0107`.
    pub code: &'static str,
    /// The mistake in a few words.
    pub title: &'static str,
    /// Why it is a mistake and what to do, in one paragraph.
    pub explanation: &'static str,
    /// A small input that holds this mistake and no other: a spec up to `Z0108`, and Rust from `Z0109` on.
    pub example: &'static str,
}

/// All codes, in order.
pub const CODES: &[Code] = &[
    Code {
        code: "Z0101",
        title: "not RON",
        explanation: "The text is not RON, so nothing in it was looked at any further. The place is where reading \
            stopped; the cause is there or shortly before: a missing comma, a parenthesis or a string that is never \
            closed, a key without a colon.",
        example: "(zero: (stage: 3) mesh: (zero: 2))",
    },
    Code {
        code: "Z0102",
        title: "missing key",
        explanation: "A key that has no default is not there. That is `stage` in `zero`: which of the states are \
            sharded is a choice that nobody else can make. Every other key has a default.",
        example: "(mesh: (zero: 2))",
    },
    Code {
        code: "Z0103",
        title: "wrong type, or unknown variant",
        explanation: "The value is of another kind than the key expects, such as a string in place of a number, a \
            number without a unit in place of a size, or a name that is not among the ones to choose from. The message \
            says what is expected there.",
        example: "(zero: (stage: 3, bucket: 25))",
    },
    Code {
        code: "Z0104",
        title: "duplicate key",
        explanation: "A key is given twice in one section. Only one of the two could count, and a reader could not \
            tell which, so neither does: remove one.",
        example: "(zero: (stage: 3, prefetch: 1, prefetch: 2))",
    },
    Code {
        code: "Z0105",
        title: "no such stage",
        explanation: "There are four stages. At stage 0 every rank holds all of the parameters, gradients and optimizer \
            state; stage 1 shards the optimizer state among the ranks, stage 2 the gradients too, and stage 3 the \
            parameters too.",
        example: "(zero: (stage: 4))",
    },
    Code {
        code: "Z0106",
        title: "value out of range",
        explanation: "The value is of the right kind but cannot be meant: no ranks, no sequences, no tokens, no \
            micro-batches, a size of zero bytes, a negative number, or a number, a size or a step too large to count \
            in 64 bits. The message says which values are expected.",
        example: "(mesh: (zero: 0), zero: (stage: 3))",
    },
    Code {
        code: "Z0107",
        title: "unknown key",
        explanation: "There is no such key in this section. It is not ignored, as a misspelled option that is ignored \
            trains something other than what was asked for. The message lists the keys that there are.",
        example: "(zero: (stage: 3, prefech: 2))",
    },
    Code {
        code: "Z0108",
        title: "option without effect",
        explanation: "The option changes nothing in this spec, whatever its value. `prefetch` says how many units ahead \
            parameters are gathered, and only stage 3 gathers them unit by unit: remove `prefetch`, or choose stage 3. \
            The number of ranks never makes an option an error, so that a spec can be tried on one rank as it is.",
        example: "(zero: (stage: 2, prefetch: 1))",
    },
    Code {
        code: "Z0109",
        title: "attribute and spec disagree",
        explanation: "The attribute names a spec and also gives an option of its own, with another value than the \
            spec's. Neither takes precedence: remove the option from the attribute, or make the two equal.",
        example: "#[zero(spec = \"specs/zero3.ron\", stage = 2)] // the spec says `stage: 3`\nstruct Gpt { /* ... */ }",
    },
    Code {
        code: "Z0110",
        title: "unusable attribute or struct",
        explanation: "`#[zero(...)]` takes `name = value` options and stands on a struct with named fields, each a \
            layer or an array of layers: the fields, in order, are the units that are gathered and released. An enum, a \
            union, a generic or tuple struct, a struct of fewer than two fields, or an attribute of another form gives \
            no such order. `#[tied(field)]` stands on the last field and names one before it. A spec file must be readable.",
        example: "#[zero(stage = 3)]\nstruct Gpt(Embedding<VOCAB, CONTEXT, DIM>, LmHead<DIM, VOCAB>);",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parse;

    #[test]
    fn codes_are_in_order_and_unique() {
        assert!(CODES.is_sorted_by(|one, next| one.code < next.code));
    }

    #[test]
    fn each_example_holds_its_mistake_and_no_other() {
        for code in CODES.iter().filter(|code| code.code < "Z0109") {
            let problems = parse(code.example).expect_err(code.code);
            let found: Vec<_> = problems.iter().map(|problem| problem.code).collect();
            assert_eq!(found, [code.code]);
        }
    }

    #[test]
    fn z0110_unusable_attribute_or_struct() {
        let code = CODES.iter().find(|code| code.code == "Z0110").unwrap();
        assert!(code.explanation.contains("struct with named fields"));
    }
}
