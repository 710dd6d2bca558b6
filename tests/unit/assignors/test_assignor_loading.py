"""How an assignor is found, by name, in installed distributions or as an object, and the errors when it is not."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kconsumer import assignors
from kconsumer.assignors import Assignment, Assignor, AssignorInfo, ClusterView, RebalanceProtocol, Subscription
from kconsumer.errors import AssignorLoadError, ConfigError, UnknownAssignorError

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
PLUGIN = """
from kconsumer.assignors import Assignor

class Plugin(Assignor):
    name = "{name}"
    def assign(self, cluster, subscriptions):
        return {{}}
"""

Install = Callable[..., None]


class Toy(Assignor):
    """An assignor that stores its configuration."""

    name = "toy"
    options: Mapping[str, object] | None = None

    def configure(self, options: Mapping[str, object]) -> None:
        """Stores the configuration."""
        self.options = options

    def assign(self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Returns an empty assignment."""
        return {}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove registrations and imported plugins of other tests."""
    monkeypatch.setattr(assignors, "_registered", {})
    monkeypatch.delenv("KCONSUMER_DISABLE_PLUGINS", raising=False)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("plugin_"):
            del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Create a distribution with one entry point on sys.path, as pip does."""

    def make(
        dist: str, name: str, source: str | None = PLUGIN, attribute: str = "Plugin", version: str = "1.2"
    ) -> None:
        root = tmp_path / dist
        module = "plugin_" + dist.replace("-", "_").replace(".", "_").lower()
        info = root / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[kconsumer.assignors]\n{name} = {module}:{attribute}\n")
        if source is not None:
            (root / f"{module}.py").write_text(source.replace("{name}", name).replace("{{}}", "{}"))
        monkeypatch.syspath_prepend(str(root))

    return make


def failure(spec: object, options: Mapping[str, object] | None = None) -> AssignorLoadError:
    """Returns the error of loading this assignor."""
    with pytest.raises(AssignorLoadError) as caught:
        assignors.load(spec, options)  # type: ignore[arg-type]  # wrong things too
    return caught.value


def test_the_built_in_assignors_are_entry_points() -> None:
    """The four built-in assignors are listed with our distribution, and each loads by its name."""
    available = assignors.available()
    assert set(assignors.BUILT_IN) <= set(available)
    for name in assignors.BUILT_IN:
        assert "kconsumer" == available[name].distribution
        assert name == assignors.load(name).name


def test_the_built_in_assignors_load_from_their_entry_points() -> None:
    """The built-in assignors are loaded without reading entry points, from the same targets that the entry
    points have.
    """
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][assignors.ENTRY_POINT_GROUP]
    assert declared == {name: assignors.origin(assignors.load(name)).target for name in assignors.BUILT_IN}


def test_names_of_java_classes_are_understood() -> None:
    """The class names of Java's assignors load our assignors."""
    java = "org.apache.kafka.clients.consumer."
    pairs = {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }
    assert list(pairs) == [assignors.load(f" {java}{name} ").name for name in pairs.values()]


def test_a_plugin_is_found_by_name_and_not_imported_before(install: Install) -> None:
    """A plugin is imported when it is loaded by its name; listing plugins or loading another one does not import it."""
    install("acme-rackwise", "rackwise")
    listed = assignors.available()["rackwise"]
    assert AssignorInfo("rackwise", "acme-rackwise", "1.2", "plugin_acme_rackwise:Plugin") == listed
    assignors.load("range")
    assert "plugin_acme_rackwise" not in sys.modules
    loaded = assignors.load("rackwise")
    assert "rackwise" == loaded.name
    assert listed == assignors.origin(loaded)
    assert 'assignor "rackwise" (acme-rackwise 1.2, plugin_acme_rackwise:Plugin)' == str(assignors.origin(loaded))


def test_a_broken_plugin_that_is_not_selected_does_no_harm(install: Install) -> None:
    """A plugin that cannot be imported stops neither listing nor other assignors."""
    install("acme-broken", "broken", "raise RuntimeError('no')")
    assert "broken" in assignors.available()
    assert "sticky" == assignors.load("sticky").name


def test_two_plugins_of_one_name_are_an_error(install: Install) -> None:
    """Two plugins with one name raise an error that names both with their versions; "distribution::name"
    selects one.
    """
    install("acme-rackwise", "rackwise")
    install("Other.Racks", "rackwise", version="3")
    message = str(failure("rackwise"))
    for part in ("acme-rackwise 1.2", "Other.Racks 3", '"acme-rackwise::rackwise"', '"Other.Racks::rackwise"'):
        assert part in message
    assert "Other.Racks" == assignors.origin(assignors.load("other-racks::rackwise")).distribution
    assert {"acme-rackwise::rackwise", "Other.Racks::rackwise"} <= set(assignors.available())
    assert "rackwise" not in assignors.available()


def test_a_built_in_cannot_be_shadowed(install: Install) -> None:
    """The name "range" always loads the built-in assignor, although another distribution has a plugin of this name."""
    install("acme-range", "range")
    assert "kconsumer" == assignors.origin(assignors.load("range")).distribution
    assert "range" == assignors.load("kconsumer::range").name
    assert "kconsumer" == assignors.available()["range"].distribution
    with pytest.raises(UnknownAssignorError):
        assignors.load("acme-range::range")
    with pytest.raises(ConfigError, match="built-in"):
        assignors.register("range", Toy)


def test_registered_assignors_come_before_plugins(install: Install) -> None:
    """An assignor that the program registered is preferred to an installed plugin of the same name."""
    install("acme-toy", "toy")
    assignors.register("toy", Toy)
    assert isinstance(assignors.load("toy"), Toy)
    assert AssignorInfo("toy", "", "", f"{__name__}:Toy") == assignors.available()["toy"]
    assert "acme-toy" == assignors.origin(assignors.load("acme-toy::toy")).distribution


def test_registering_again_replaces() -> None:
    """Registering a name again replaces the assignor, so that a notebook cell can run twice."""
    assignors.register("toy", lambda: failure(None))  # type: ignore[arg-type, return-value]  # never called
    assignors.register("toy", Toy)
    assert isinstance(assignors.load("toy"), Toy)


@pytest.mark.parametrize("name", ["", "Toy", "my toy", "-toy", "töy", "a::b"])
def test_names_are_plain_lowercase_words(name: str) -> None:
    """A name that is not valid for an entry point is refused at registration."""
    with pytest.raises(ConfigError, match="cannot name"):
        assignors.register(name, Toy)


def test_only_callables_are_registered() -> None:
    """An instance cannot be registered, because all consumers of the process would share it."""
    with pytest.raises(ConfigError, match="not callable"):
        assignors.register("toy", Toy())  # type: ignore[arg-type]  # the mistake under test


def test_an_instance_is_used_unchanged() -> None:
    """An instance is used without configuration; it may have any name that is free, even a registered one."""
    assignors.register("toy", lambda: failure(None))  # type: ignore[arg-type, return-value]  # never called
    toy = Toy()
    assert toy is assignors.load(toy, {"client_rack": "a"})
    assert toy.options is None


def test_classes_and_factories_are_made_and_configured() -> None:
    """A class, a factory without arguments and a factory that takes the options each give a configured assignor."""
    options = {"client_rack": "a"}
    seen: list[Mapping[str, object]] = []

    def factory(given: Mapping[str, object]) -> Toy:
        seen.append(given)
        return Toy()

    for spec in (Toy, lambda: Toy(), factory):
        toy = assignors.load(spec, options)
        assert isinstance(toy, Toy)
        assert options == toy.options
    assert [options] == seen
    made = assignors.load(Toy)
    assert isinstance(made, Toy)
    assert {} == made.options


def test_a_module_path_is_imported(install: Install) -> None:
    """A class given as "package.module:Class" is loaded without an entry point."""
    install("acme-toy", "toy")
    assert "toy" == assignors.load("plugin_acme_toy:Plugin").name
    assert "cannot be imported: AttributeError" in str(failure("plugin_acme_toy:Missing"))
    assert "cannot be imported: ModuleNotFoundError" in str(failure("plugin_that_is_missing:Plugin"))


def test_an_unknown_name_lists_the_assignors_and_suggests_one() -> None:
    """The error lists the four built-in and all registered assignors, and suggests a similar name."""
    assignors.register("toy", Toy)
    with pytest.raises(UnknownAssignorError) as caught:
        assignors.load("Cooperative_Sticky")
    message = str(caught.value)
    assert '"Cooperative_Sticky"' in message
    assert "cooperative-sticky, range, roundrobin, sticky, toy" in message
    assert 'did you mean "cooperative-sticky"' in message


def test_plugins_can_be_switched_off(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the environment variable is set, installed plugins are not found and the error gives the reason. Assignors
    given in code still load.
    """
    install("acme-rackwise", "rackwise")
    monkeypatch.setenv("KCONSUMER_DISABLE_PLUGINS", "1")
    assert "rackwise" not in assignors.available()
    with pytest.raises(UnknownAssignorError, match="KCONSUMER_DISABLE_PLUGINS is set"):
        assignors.load("rackwise")
    assignors.register("toy", Toy)
    assert ["range", "toy", "rackwise"] == [
        assignors.load(spec).name for spec in ("range", "toy", "plugin_acme_rackwise:Plugin")
    ]


@pytest.mark.parametrize(
    ("source", "attribute", "says", "cause"),
    [
        ("import missing_module", "Plugin", "cannot be imported: ModuleNotFoundError", ModuleNotFoundError),
        (PLUGIN, "Other", "cannot be imported: AttributeError", AttributeError),
        ("Plugin = 1", "Plugin", "neither a class nor a factory", None),
        ("def Plugin(): raise OSError('no disk')", "Plugin", "cannot be created: OSError: no disk", OSError),
        ("def Plugin(): return object()", "Plugin", "not a kconsumer.Assignor", None),
        (PLUGIN.replace("def assign", "def other"), "Plugin", "cannot be created: TypeError", TypeError),
        (PLUGIN.replace("{name}", "different"), "Plugin", 'calls itself "different"', None),
        (PLUGIN.replace('name = "{name}"', ""), "Plugin", "no usable `name`", None),
        (PLUGIN + "    protocols = ()", "Plugin", "supports no rebalance protocol", None),
        (PLUGIN + "    protocols = ('EAGER',)", "Plugin", "unknown rebalance protocol: 'EAGER'", None),
        (PLUGIN + "    protocols = 'EAGER'", "Plugin", "not a tuple of RebalanceProtocol", None),
        (PLUGIN + "    version = '1'", "Plugin", "`version` that is not an int", None),
        (PLUGIN + "    def configure(self, options): raise KeyError('x')", "Plugin", "rejected", KeyError),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(
    install: Install, source: str, attribute: str, says: str, cause: type[Exception] | None
) -> None:
    """The error contains distribution, version, target and problem, and its cause is the plugin's exception."""
    install("acme-bad", "bad", source, attribute)
    error = failure("bad")
    assert f'assignor "bad" (acme-bad 1.2, plugin_acme_bad:{attribute})' in str(error)
    assert says in str(error)
    assert (type(None) if cause is None else cause) is type(error.__cause__)


def test_objects_that_are_no_assignor_are_refused() -> None:
    """A number or an instance of an unrelated class is refused."""
    with pytest.raises(ConfigError, match="not 3"):
        assignors.load(3)  # type: ignore[arg-type]  # the mistake under test
    assert "returned int" in str(failure(int))


def test_a_list_is_loaded_whole() -> None:
    """A list may contain names and objects, in order of preference."""
    toy = Toy()
    assert ["range", "toy"] == [assignor.name for assignor in assignors.load_all(["range", toy])]
    with pytest.raises(ConfigError, match="at least one"):
        assignors.load_all([])
    with pytest.raises(ConfigError, match='named "toy"'):
        assignors.load_all([toy, Toy])


def test_the_highest_common_protocol_is_used() -> None:
    """One eager assignor in the list makes the group eager (KIP-429); a list without a common protocol is an error."""
    only = type("Only", (Toy,), {"name": "only", "protocols": (RebalanceProtocol.COOPERATIVE,)})
    cooperative = assignors.load("cooperative-sticky")
    assert RebalanceProtocol.COOPERATIVE is assignors.common_protocol([cooperative])
    assert RebalanceProtocol.EAGER is assignors.common_protocol([assignors.load("range"), cooperative])
    with pytest.raises(ConfigError, match="toy: EAGER, only: COOPERATIVE"):
        assignors.load_all([Toy, only])
