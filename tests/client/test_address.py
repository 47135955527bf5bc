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


def test_what_the_caller_says_goes_before_all(environment, write):
    write('url = "http://written:1"\napi_key = "written"')
    environment |= {"SANDBOX_SERVER_URL": "http://set:2", "SANDBOX_SERVER_API_KEY": "set"}
    asked = find_address("http://said:3/", "said", environment=environment)
    assert asked == Address("http://said:3", "said")
    assert find_address(environment=environment) == Address("http://set:2", "set")


def test_the_server_of_this_machine_is_the_usual_one(environment):
    assert find_address(api_key="k", environment=environment).url == DEFAULT_URL


def test_a_file_says_what_nobody_else_does(environment, write):
    write('url = "https://written.example"\napi_key = "written\\n"')
    found = find_address(environment=environment)
    assert found == Address("https://written.example", "written")
    assert found.websocket_url == "wss://written.example"
    assert "written" not in repr(found).replace(found.url, "")


def test_a_key_that_was_written_down_is_told_to_its_own_server_alone(environment, write):
    write('url = "https://written.example"\napi_key = "written"')
    with pytest.raises(ConfigurationError, match="SANDBOX_SERVER_API_KEY"):
        find_address("https://other.example", environment=environment)


def test_without_a_key_it_is_said_how_to_get_one(environment):
    with pytest.raises(ConfigurationError, match="sandbox-server keys create"):
        find_address(environment=environment)
    assert find_address(api_key="", environment=environment).headers == {}


@pytest.mark.parametrize("url", ["localhost:8100", "ftp://x", "http://", "http://x?a=b"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigurationError, match="address"):
        find_address(url, "k", environment={})


@pytest.mark.parametrize("text", ["url = ", "api_key = 7"])
def test_a_file_that_cannot_be_understood_is_named(environment, write, text):
    write(text)
    with pytest.raises(ConfigurationError, match=r"client\.toml"):
        find_address(environment=environment)
