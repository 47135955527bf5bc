"""Request bodies of Browserbase's API. Unknown fields are ignored, as its newer clients send them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sandbox_client.models import Name, Storable

Region = Literal["us-west-2", "us-east-1", "eu-central-1", "ap-southeast-1"]
SessionStatus = Literal["PENDING", "RUNNING", "ERROR", "TIMED_OUT", "COMPLETED"]

_LARGEST_METADATA = 64


class BrowserbaseBody(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ContextChoice(BrowserbaseBody):
    id: str
    persist: bool = False


class Viewport(BrowserbaseBody):
    width: Annotated[int, Field(ge=64, le=8192)] = 1280
    height: Annotated[int, Field(ge=64, le=8192)] = 720


class BrowserSettings(BrowserbaseBody):
    context: ContextChoice | None = None
    extension_id: str | None = None
    viewport: Viewport | None = None
    allowed_domains: list[str] = Field(default_factory=list)
    ignore_certificate_errors: bool = False
    log_session: bool = True
    record_session: bool = True
    solve_captchas: bool | None = None
    captcha_image_selector: Storable | None = None
    captcha_input_selector: Storable | None = None


class ProxyConfig(BrowserbaseBody):
    type: Literal["browserbase", "external", "none"]
    server: Storable | None = None
    username: Storable | None = None
    password: Storable | None = None
    domain_pattern: Storable | None = None


class SessionBody(BrowserbaseBody):
    browser_settings: BrowserSettings = Field(default_factory=BrowserSettings)
    extension_id: str | None = None
    keep_alive: bool = False
    proxies: bool | list[ProxyConfig] = False
    region: Region = "us-west-2"
    timeout: Annotated[int, Field(ge=60, le=21600)] | None = None
    user_metadata: Annotated[dict[Storable, Any], Field(max_length=_LARGEST_METADATA)] = Field(
        default_factory=dict
    )


class ContextBody(BrowserbaseBody):
    name: Name | None = None


class SessionUpdateBody(BrowserbaseBody):
    status: Literal["REQUEST_RELEASE"]
