"""Readable names of C++ kernels that the profiler wrote mangled (Itanium ABI), as `c++filt` prints them.

A name with a form that is not read here, such as an expression in a template argument, stays as it is.
"""

from collections.abc import Callable
from functools import lru_cache


def _codes(text: str) -> dict[str, str]:
    """`code name; code name` as a table."""
    return dict(entry.split(" ", 1) for entry in text.split("; "))


_BUILTIN = _codes(
    "v void; w wchar_t; b bool; c char; a signed char; h unsigned char; s short; t unsigned short; i int; "
    "j unsigned int; l long; m unsigned long; x long long; y unsigned long long; n __int128; f float; d double; "
    "e long double; g __float128; z ..."
)
_EXTENDED = _codes("DF16b std::bfloat16_t; DF16_ _Float16; Dh half; Dn decltype(nullptr); Da auto")
_STANDARD = _codes("a std::allocator; b std::basic_string; s std::string; i std::istream; o std::ostream")
_OPERATORS = _codes(
    "pl +; mi -; ml *; dv /; rm %; an &; or |; eo ^; co ~; nt !; aa &&; oo ||; eq ==; ne !=; lt <; gt >; le <=; ge >=; "
    "aS =; pL +=; mI -=; mL *=; dV /=; ls <<; rs >>; pp ++; mm --; pt ->; cl (); ix []"
)
_SUFFIXES = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "bool": ""}
_INNER = "\0"  # where a function's or array's type takes the `*` of a pointer to it
# Around the number of a template parameter, whose argument depends on the function that has it.
_PARAMETER = "\1"
_MAX_CHARS = 20_000  # substitutions of damaged names can double the text with every letter
_MOST_NAMES = 8_192  # a trace has some hundred


@lru_cache(_MOST_NAMES)
def demangled(name: str) -> str:
    """The declaration behind a mangled name; the name itself where it is not mangled or has an unknown form."""
    if not name.startswith("_Z"):
        return name
    try:
        reader = _Reader(name.removesuffix(".kd"), 2)  # AMD's kernel descriptors
        text = reader.encoding()
    except (LookupError, ValueError, RecursionError):
        return name
    rest = reader.text[reader.at :]
    return _filled(text, []) if not rest or rest.startswith(".") else name


class _Reader:
    """Reads one mangled name from left to right.

    Attributes:
        text, at: the name, and the position of the next letter.
        seen: what substitutions (`S_`, `S0_`) stand for, in order.
        arguments: of the template that was read last, for its parameters (`T_`, `T0_`).
        constant: whether the name that was read last is of a constant member function.
    """

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at
        self.seen: list[str] = []
        self.arguments: list[str] = []
        self.constant = False

    def _skip(self, word: str) -> bool:
        """Whether the word comes next, which is passed over then."""
        follows = self.text.startswith(word, self.at)
        self.at += len(word) * follows
        return follows

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise ValueError(f"no {word} at {self.at}")

    def _ends(self) -> bool:
        return self.at >= len(self.text) or self.text[self.at] in "E."

    def _remember(self, text: str) -> str:
        if len(text) > _MAX_CHARS:
            raise ValueError("too long")
        self.seen.append(text)
        return text

    def _until_end(self, part: Callable[[], str]) -> list[str]:
        """Parts up to and with the letter E; empty ones are packs of nothing."""
        parts = []
        while not self._skip("E"):
            parts.append(part())
        return [text for text in parts if text]

    def _number(self, digits: str = "0123456789") -> int:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in digits:
            self.at += 1
        return int(self.text[start : self.at], len(digits))

    def _sequence(self) -> int:
        """`_` is 0, `0_` is 1, `Z_` is 36: letters are digits of base 36."""
        if self._skip("_"):
            return 0
        number = self._number("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        self._expect("_")
        return number + 1

    def encoding(self, *, is_scope: bool = False) -> str:
        """A function with its parameters, or an object's name; a scope has no type before it."""
        self.constant = False
        name, is_template = self._name()
        constant, arguments = " const" * self.constant, self.arguments
        if self._ends():
            return name
        returned = f"{self._type()} " if is_template else ""
        parameters = []
        while not self._ends():
            parameters.append(self._type())
        listed = ", ".join(_plain(text) for text in parameters if text and text != "void")
        filled = [_filled(text, arguments) for text in ("" if is_scope else returned, listed)]
        return f"{filled[0]}{name}({filled[1]}){constant}"

    def _name(self) -> tuple[str, bool]:
        """(name, whether its last part has template arguments)."""
        if self._skip("N"):
            return self._nested()
        if self._skip("Z"):
            return self._local()
        if self.text.startswith("S", self.at) and not self.text.startswith("St", self.at):
            name = self._substituted()
        else:
            name = ("std::" if self._skip("St") else "") + self._unqualified()
            if self.text.startswith("I", self.at):
                self._remember(name)
        if self.text.startswith("I", self.at):
            return name + self._template_arguments(), True
        return name, False

    def _nested(self) -> tuple[str, bool]:
        constant = self._skip("K")
        name, is_template = "", False
        while not self._skip("E"):
            known = False
            if self.text.startswith("I", self.at):
                name, is_template = name + self._template_arguments(), True
            elif self.text.startswith("St", self.at) and not name:
                self.at += 2
                name, known = "std", True
            elif self.text[self.at] == "S":
                name, known = self._substituted(), True
            elif self.text[self.at] == "T":
                name, is_template = self._parameter(), False
            else:
                part = self._unqualified()
                name, is_template = f"{name}::{part}" if name else part, False
            if not known and not self.text.startswith("E", self.at):
                self._remember(name)
        self.constant = constant
        return name, is_template

    def _local(self) -> tuple[str, bool]:
        """What a function declares inside."""
        around = self.encoding(is_scope=True)
        self._expect("E")
        if self._skip("s"):
            return around, False
        name, is_template = self._name()
        return f"{around}::{name}", is_template

    def _unqualified(self) -> str:
        self._skip("L")
        if self._skip("Ul"):
            listed = ", ".join(text for text in self._until_end(self._type) if text != "void")
            return _plain(f"{{lambda({_filled(listed, [])})#{self._sequence() + 1}}}")
        if self._skip("Ut"):
            return f"{{unnamed type#{self._sequence() + 1}}}"
        if self.text[self.at].isdigit():
            return self._source_name()
        operator = _OPERATORS[self.text[self.at : self.at + 2]]
        self.at += 2
        return f"operator{operator}"

    def _source_name(self) -> str:
        length = self._number()
        name = self.text[self.at : self.at + length]
        if len(name) < length:
            raise ValueError("name is cut off")
        self.at += length
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def _substituted(self) -> str:
        self._expect("S")
        if self.text[self.at] in _STANDARD:
            self.at += 1
            return _STANDARD[self.text[self.at - 1]]
        return self.seen[self._sequence()]

    def _parameter(self) -> str:
        self._expect("T")
        return f"{_PARAMETER}{self._sequence()}{_PARAMETER}"

    def _template_arguments(self) -> str:
        self._expect("I")
        arguments: list[str] = []
        while not self._skip("E"):
            arguments.append(_plain(self._argument()))
        self.arguments = arguments
        return f"<{', '.join(text for text in arguments if text)}>"

    def _argument(self) -> str:
        if self._skip("Tn"):  # the type of a parameter, before the argument
            self._type()
        if self._skip("J"):
            return ", ".join(self._until_end(self._argument))
        if self._skip("X"):
            self._skip("ad")
            value = self._literal()
            self._expect("E")
            return f"&({value})"
        return self._literal() if self.text.startswith("L", self.at) else self._type()

    def _literal(self) -> str:
        self._expect("L")
        if self._skip("_Z"):
            value = self.encoding()
            self._expect("E")
            return value
        kind = _plain(self._type())
        end = self.text.index("E", self.at)
        value, self.at = self.text[self.at : end].replace("n", "-"), end + 1
        if kind == "bool":
            return "true" if value == "1" else "false"
        return value + _SUFFIXES[kind] if kind in _SUFFIXES else f"({kind}){value}"

    def _type(self) -> str:
        letter = self.text[self.at]
        if letter in _BUILTIN:
            self.at += 1
            return _BUILTIN[letter]
        for code, name in _EXTENDED.items():
            if self._skip(code):
                return name
        if self._skip("Dp"):
            return self._type()
        if letter in "PROKV":
            self.at += 1
            return self._remember(_qualified(self._type(), letter))
        if self._skip("F"):
            self._skip("Y")
            returned, *parameters = self._until_end(self._type)
            listed = ", ".join(_plain(text) for text in parameters if text != "void")
            return self._remember(f"{_plain(returned)} {_INNER}({listed})")
        if self._skip("A"):
            size = self._number()
            self._expect("_")
            return self._remember(f"{_plain(self._type())} {_INNER}[{size}]")
        return self._class()

    def _class(self) -> str:
        """A named type, or what stands for one."""
        if self.text[self.at] == "T":
            name = self._remember(self._parameter())
        elif self.text[self.at] == "S" and self.text[self.at + 1] != "t":
            name = self._substituted()
        else:
            return self._remember(self._name()[0])
        if self.text.startswith("I", self.at):
            return self._remember(name + self._template_arguments())
        return name


def _qualified(text: str, letter: str) -> str:
    """The type with `*`, `&`, `const`; a pointer to a function or an array has it in parentheses."""
    mark = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile"}[letter]
    if _INNER not in text:
        return text if letter in "RO" and text.endswith("&") else text + mark
    if letter in "KV":
        return text
    if f"{_INNER})" in text:
        return text.replace(_INNER, f"{mark}{_INNER}")
    return text.replace(_INNER, f"({mark}{_INNER})")


def _filled(text: str, arguments: list[str]) -> str:
    """The text with arguments for template parameters; those of generic lambdas have none."""
    parts = text.split(_PARAMETER)
    for place in range(1, len(parts), 2):
        number = int(parts[place])
        parts[place] = arguments[number] if number < len(arguments) else "auto"
    return "".join(parts)


def _plain(text: str) -> str:
    return text.replace(_INNER, "")
