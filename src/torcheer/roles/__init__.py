"""What the modules of a transformer are for, found from structure: 'resid[5]', 'attn[5].q', 'unembed'."""

from torcheer.roles.block_places import Place
from torcheer.roles.role_table import PARTS, ROLE, SINGLE, Roles, is_role, roles_of

__all__ = ["PARTS", "ROLE", "SINGLE", "Place", "Roles", "is_role", "roles_of"]
