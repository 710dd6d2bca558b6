from typing import final

@final
class Program: ...
