import pytest

from sandbox_client.errors import ConfigurationError
from sandbox_client.protocol.address import DEFAULT_URL, Address, config_file, find_address


@pytest.fixture
def environment(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def write(environment):
    def write(text):
        file = config_file(environment)
        file.parent.mkdir()
        file.write_text(text)

    return write


def test_address__arguments_take_precedence(environment, write):
    write('url = "http://written:1"\napi_key = "written"')
    environment |= {"SANDBOX_SERVER_URL": "http://set:2", "SANDBOX_SERVER_API_KEY": "set"}
    asked = find_address("http://said:3/", "said", environment=environment)
    assert asked == Address("http://said:3", "said")
    assert find_address(environment=environment) == Address("http://set:2", "set")


def test_address__default_is_the_local_server(environment):
    assert find_address(api_key="k", environment=environment).url == DEFAULT_URL


def test_address__configuration_file_fills_in_the_rest(environment, write):
    write('url = "https://written.example"\napi_key = "written\\n"')
    found = find_address(environment=environment)
    assert found == Address("https://written.example", "written")
    assert found.websocket_url == "wss://written.example"
    assert "written" not in repr(found).replace(found.url, "")


def test_address__saved_key_is_sent_only_to_its_server(environment, write):
    write('url = "https://written.example"\napi_key = "written"')
    with pytest.raises(ConfigurationError, match="SANDBOX_SERVER_API_KEY"):
        find_address("https://other.example", environment=environment)


def test_address__missing_key_is_an_error_with_advice(environment):
    with pytest.raises(ConfigurationError, match="sandbox-server keys create"):
        find_address(environment=environment)
    assert find_address(api_key="", environment=environment).headers == {}


@pytest.mark.parametrize("url", ["localhost:8100", "ftp://x", "http://", "http://x?a=b"])
def test_address__invalid_url_is_rejected(url):
    with pytest.raises(ConfigurationError, match="The server URL must"):
        find_address(url, "k", environment={})


@pytest.mark.parametrize("text", ["url = ", "api_key = 7"])
def test_address__invalid_configuration_file_is_named(environment, write, text):
    write(text)
    with pytest.raises(ConfigurationError, match=r"client\.toml"):
        find_address(environment=environment)
