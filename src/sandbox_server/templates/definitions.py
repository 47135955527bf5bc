"""Encrypted definitions of templates: they may contain passwords."""

import json

from sandbox_server.db.models import Template
from sandbox_server.domain.templates import Definition
from sandbox_server.vault import Vault


def encrypt_definition(vault: Vault, template_id: str, definition: Definition) -> bytes:
    return vault.encrypt(json.dumps(definition.document()).encode(), context=_context(template_id))


def decrypt_definition(vault: Vault, template: Template) -> Definition:
    assert template.definition_sealed is not None
    return Definition.read(
        json.loads(vault.decrypt(template.definition_sealed, context=_context(template.id)))
    )


def _context(template_id: str) -> str:
    return f"templates.definition/{template_id}"
