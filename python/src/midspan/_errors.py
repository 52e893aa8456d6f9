class ScenarioError(ValueError):
    """A scenario that was refused: what is wrong, where, and what would be right.

    Prints as ``file:line: what``. Of a scenario made of objects nobody has seen the text, so the
    line itself is told too.
    """

    def __init__(self, file: str, line: int, what: str, source: str) -> None:
        super().__init__(file, line, what, source)
        #: The file's name, or ``scenario`` for one made of objects.
        self.file = file
        #: Counted from 1.
        self.line = line
        #: What is wrong, and what would be right.
        self.what = what
        #: The line's text.
        self.source = source

    def __str__(self) -> str:
        told = f" (in `{self.source}`)" if self.file == "scenario" and self.source else ""
        return f"{self.file}:{self.line}: {self.what}{told}"
